"""The commands of `gossamer`: arguments and options. Each calls a module of `gossamer.cli`."""
