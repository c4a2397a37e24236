"""How large the runs of tests are, in one table.

Programs of the same shapes are compiled once and found again by other tests, other workers and the next run: a test takes its
sizes from here unless it is about sizes. Small ones suffice, compiling takes far longer than running.
"""

# Runs, as `Settings` take them. Four groups as by default, of as few chains as three parameters allow ...
RUN = {"chains": 32, "iterations": 12, "tune": 8, "draws": 4, "thin": 1, "extend": 0, "chunk": 4, "devices": 1}
# ... and the fewest there can be.
FEW = {"chains": 16, "groups": 2, "iterations": 8, "tune": 4, "draws": 4, "thin": 1, "extend": 0, "chunk": 4}
FEW |= {"devices": 1}
# Beside them where a surrogate is trained.
TRAINING = {"inner_steps": 2, "batch": 4, "replay": 2, "gradient_chains": 2}

# Fleets of the built-in problems.
SYSTEMS = 3

# Networks: of a law, and of each surrogate.
LAW = {"width": 8, "depth": 1}
NETWORKS = {
    "solver": {},
    "basis": {"width": 8, "depth": 2, "rank": 6},
    "fno-supervised": {"width": 4, "modes": 3, "depth": 2},
    "fno-physics": {"width": 4, "modes": 3, "depth": 2},
    "pinn": {"width": 8, "depth": 2},
}
