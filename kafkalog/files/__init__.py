"""Effects on disks: the FileSystem interface, names, pools of descriptors and mappings, locks."""
