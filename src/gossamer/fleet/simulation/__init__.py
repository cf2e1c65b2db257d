"""Deterministic simulation of real nodes: one scheduler, one seed.

The nodes are the real ones; their clock, disk, links and stop signal are simulated.

    scheduler    simulated time and processes, of which exactly one runs at a time
    clock        clocks that drift and jump, and the signal to stop
    disk         a disk that tears writes, loses what was not synced, fills up and fails
    network      links that are cut, and messages that are delayed, duplicated and corrupted
    scenario     what a seed stands for: method, devices, and which faults
    fleet        the devices of one seed: they are killed, restarted and checked
    oracle       what must hold after every event
    seeds        many seeds, on one core or several
"""
