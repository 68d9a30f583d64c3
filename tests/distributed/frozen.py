"""Imported last by the server that processes are forked from: what is there by then is left out when they collect.

Saving collects first (`accelify.runtime.weak_list`), and going through all that torch consists of takes half a second.
"""

import gc

gc.collect()
gc.freeze()
