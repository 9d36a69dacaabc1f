"""Where bundles come from, and who vouches for them."""
