"""Run a study on real devices: one process per device, over links that come and go.

    settings    `Fleet`, what all devices share; `Device`, the file of one of them
    provision   write the files and certificates of a fleet (`gossamer fleet init`)
    service     run one device until its rounds are done (`gossamer node`)
    node        the loop of one device: rounds on a shared clock
    schedule    when rounds and exchanges are
    mix         the `Mix` that an algorithm sees on a device
    methods     which methods run on devices, and what they exchange
    files       the files in a device's folder
    protocol/   the exchange of a round: edges, messages, wire, journal
    transport/  what carries messages: zenoh, and an in-memory network for tests
    keys, pem, certificates
                the certificate authority of a fleet and the certificates of its devices
    members     who belongs to a fleet: a list that its authority signs
    membership  add, remove, revoke and renew devices
    samples     the samples of one device, which may grow
    status      what is known of each device
    collect     gather the devices' results into one run folder
    rehearsal   a whole fleet on one machine: processes, in network namespaces

Needs the extra gossamer[peer].
"""
