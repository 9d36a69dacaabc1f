"""Block masks of attention: masks as data, which kernels read from tables. Flex attention and flex decoding share them."""
