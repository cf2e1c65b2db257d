"""The study of the demo, and the spec that `gossamer new` writes."""

DEMO = """
rounds = 200
batch = 32

[data]
kind = "digits"

[split]
kind = "one-label"

[model]
kind = "softmax"

[network]
kind = "random"
devices = 10
density = 0.1

[[algorithm]]
kind = "wpm"
p = 15
eta = 0.1

[[algorithm]]
kind = "wpm"
p = 3
eta = 0.1

[[algorithm]]
kind = "wpm"
p = 1
eta = 0.1

[[algorithm]]
kind = "swarm-sgd"
eta = 0.1
"""

TEMPLATE = """# A gossamer study. Run it:  gossamer run THIS_FILE
# Any value can be changed on the way:  --set network.density=0.1 --set algorithm.p=15 --seed 3

rounds = 200
batch = 32                    # samples per step, drawn from the device's own; 0: all of them
seed = 0                      # of links, batches, split and start
# dtype = "float32"           # or "float64"
# threads = 0                 # 0: chosen by the size of the work

[data]
kind = "digits"               # digits | mnist | fashion-mnist | cifar10   (gossamer data get mnist)
                              # table: path = "robots" with one CSV or Parquet file per device
                              #        (no split then), or one file; target = "activity"
                              # arrays: path = "mine.npz" with x, y, x_test, y_test
                              # hf: path = "news", a data set of Hugging Face on disk
                              # least-squares | logistic: synthetic, with a known optimum

[split]
kind = "one-label"            # iid | one-label | labels (k = 2) | dirichlet (alpha = 0.1)
                              # | uneven (sigma = 1.0) | drawn (samples = 32, with replacement)
                              # | by-class (column = "class") | lists (path = "mine.json")

[model]
kind = "softmax"              # softmax | svm | mlp (hidden = [64])
                              # | cnn (channels = [16, 32], norm = false)
                              # | transformers (folder, head, lora)
# Your own code instead, with `--allow-code`; also as data, split, network or algorithm:
# model = { kind = "python", object = "my_model:make", arguments = { width = 64 } }

[network]
kind = "random"               # random | erdos-renyi (probability) | regular (degree) | ring
                              # | random-ring | full | star | mobility (radius) | contacts (path)
                              # | positions (path, radius) | file (path) | cycle (networks)
                              # | torus (rows) | small-world (degree, rewire)
                              # | stochastic-blocks (blocks, within, between) | epidemic (degree)
                              # | exponential | one-peer-exponential | hyper-hypercube (degree)
                              # | base-graph (degree) | equi-static (basis) | equi-dyn (basis)
                              # | poisson-meetings (rate, duration)
devices = 10
density = 0.2                 # the share of possible links that are there in a round

# What goes wrong on top, as many as you like:
# [[network.faults]]
# kind = "gilbert-elliott"    # link-failure (probability) | gilbert-elliott (fail, recover)
                              # | churn (leave, come_back)
# fail = 0.1
# recover = 0.5

# How long things take; the result then has simulated seconds too. Each is a number,
# { kind = "log-uniform", low, high } or { kind = "trace", path = "links.csv" }:
# [timing]
# compute = 0.02              # seconds per step and device
# rate = { kind = "log-uniform", low = 1e5, high = 1e7 }   # bytes per second and link
# latency = 0.01              # seconds per link

# What steps and messages cost; the result then has joules too.
# [energy]
# step = 0.5                  # joules per step and device
# byte = 1e-6                 # joules per byte sent

# Samples that arrive over time; without it all are there at the start.
# [stream]
# rate = 2.0                  # samples per second and device

[measure]
every = 10                    # rounds between two measurements
at = "after_step"             # or "after_mix"
# metrics = ["accuracy", { kind = "top-k", k = 3 }]
                              # accuracy | top-k | macro-f1 | iou | perplexity | mae | rmse | r2;
                              # else accuracy for classes, rmse for numbers
targets = ["accuracy >= 0.8", "accuracy >= 0.9"]
merged = true                 # measure the mean of all models too

# Real devices: `gossamer fleet init THIS_FILE` prepares them, `gossamer fleet up THIS_FILE`
# rehearses them here.
# [fleet]
# pace = "slots"              # or "contacts": devices exchange whenever two meet, without a clock
# slot = 5.0                  # seconds per round, by a clock that all devices share
# wire = "float32"            # or "bfloat16", which is half the bytes
# join = "neighbour"          # a late device begins with a neighbour's model; or with its "own"
# lease = 1.0                 # seconds of silence after which a link is dead
# model_every = 10            # rounds after which model.safetensors is written again
# sync = true                 # what a device writes outlives a power cut

[[algorithm]]
kind = "wpm"                  # the weighted power mean; "wpm-paper" is the paper's own form;
                              # `gossamer methods` lists all
p = 15                        # or p = { kind = "switch", first = 5, rounds = 20, then = 1 }
eta = 0.1                     # or eta = { kind = "cosine", start = 0.1, rounds = 200 }
# step = { kind = "safe", floor = 0.001 }     # constant | power | matched | safe | ratio

# As many more as you like; `gossamer compare THIS_FILE` runs them all on the same links,
# batches and start:
# [[algorithm]]
# kind = "d-psgd"             # d-psgd | quasi-global | tracking | swarm-sgd (local_steps = 1)
                              # | all-reduce
# eta = 0.1
"""
