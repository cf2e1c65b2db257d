"""What carries messages between devices: the interface, zenoh, and an in-memory network for tests."""
