"""What a trial run may change and reach: reads see the real files, writes stay in a private layer of the run.

Two kinds. "namespaces" (Linux, where user namespaces are allowed): the run has a separate root, made of overlays.
"redirected" (everywhere else): Python's file functions are redirected to private copies. Landlock, where the kernel has
it, is the last barrier of both.
"""
