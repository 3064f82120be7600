"""Every disk effect: the FileSystem seam, file names, pools of descriptors and mappings, locks."""
