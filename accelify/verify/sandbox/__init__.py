"""What a trial run may change and reach: reads see the real files, writes stay in a private layer of the run.

Two kinds. "namespaces" (Linux, where user namespaces are allowed): the run has a root of its own, made of overlays.
"redirected" (everywhere else): Python's own calls are led to private copies. Landlock, where the kernel has it, is the
floor of both.
"""
