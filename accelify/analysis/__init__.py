"""The semantic model of training scripts: what each name is, and where the training loop stands.

The spine stands here: `syntax` (the tree with byte ranges), `scopes` (which definition a name refers to), `program`
and `joined` (the modules of a project, and as one tree), `values` and `knowledge` (what there is to know), `script`
(the ScriptModel, which every transform asks), `holders` and `trained` (where models and optimizers are kept, and which
of them learn). What is asked of it lies in a room for each subject, whose own first line says what belongs there.
"""
