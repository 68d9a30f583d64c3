"""A GPU for machines that have none.

Every tensor stays in the CPU's memory and is computed there; what is simulated is where it would be. The storage of
a tensor carries a label, new tensors get the label of those they are computed from, and what torch refuses on a GPU
is refused with torch's sentences: operations over tensors of both devices, `numpy()` of a device's tensor, lengths of
packed sequences that are not on the CPU, indices on the device of what is not.

Not simulated: streams, several devices, half precision by autocast (it is entered, and computes in full precision),
compiled graphs, kernels that CUDA does not have.
"""
