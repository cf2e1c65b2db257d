"""What carries messages between devices: zenoh, and an in-memory network for tests."""
