"""What BLIP does on a GPU alone: Triton kernels, and caption decoding recorded as CUDA graphs."""
