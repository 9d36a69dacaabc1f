"""Score modifications of attention, and their form in kernels. Flex attention and flex decoding share them."""
