"""Theophylline in twelve subjects: how fast the body gets rid of a drug is not stated, but learned from all of them.

closura fit examples/theophylline/elimination.py --data examples/theophylline/theophylline.csv --out runs/theophylline
"""

import closura as cl


def physics(t, state, p, f):
    """A dose dissolves in the gut (mg) and is absorbed into the blood (mg/L), from which it is eliminated."""
    gut, conc = state
    absorbed = p.ka * gut
    return -absorbed, absorbed / p.V - p.CL / p.V * f(conc)


problem = cl.ODE(
    physics,
    state=("gut", "conc"),
    parameters={
        "ka": cl.Positive(guess=1.5),  # absorption, 1/h
        "V": cl.Positive(guess=30.0),  # volume, L
        "CL": cl.Positive(guess=3.0),  # clearance, L/h, where f(conc) = conc
        "dose": cl.Column(),  # mg, known of each subject
    },
    initial=lambda p: (p.dose, 0.0),
    span=(0.0, 25.0),
    dt=0.25,
    observed="conc",
    closure=cl.MLP(increasing=True, zero_at_origin=True),
)
