"""The Ray engine: the devices in shards, each an actor on a Ray cluster.

`engine` is the driver, `actors` starts and calls the shards, `actor` is a shard, `exchange` moves
rows between shards, `cluster` connects to Ray, `partition` assigns devices to shards. `adapter`
holds everything that relies on names which Ray and torch do not document.
"""
