"""The commands of `gossamer`: their arguments and options. Each calls a module of `gossamer.cli`."""
