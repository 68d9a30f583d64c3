"""The semantic model of training scripts: what each name is, and where the training loop is.

The main modules are here: `syntax` (the tree with byte ranges), `scopes` (which definition a name refers to), `program`
and `joined` (the modules of a project, separately and as one tree), `values` and `knowledge` (the kinds of objects and
the functions of libraries), `script` (the ScriptModel, which every transform queries), `holders` and `trained` (which
variables refer to models and optimizers, and which of them are trained). Questions about one subject are in a package
for that subject, whose first line says what belongs there.
"""
