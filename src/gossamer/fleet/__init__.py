"""The runtime for real devices: one process a device, over links that come and go. Needs the extra gossamer[peer]."""
