"""First calls of specializations: the bundle that serves a device, images, plans."""
