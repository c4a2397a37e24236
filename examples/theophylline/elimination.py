"""Theophylline in twelve subjects: how the body gets rid of a drug is not stated, but learned from all of them.

closura fit examples/theophylline/elimination.py --data examples/theophylline/theophylline.csv --out runs/theophylline
"""

import closura as cl


def physics(t, state, p, f):
    """The dose in the gut (mg) is absorbed into the blood (mg/L), from which f (mg/h) takes it away."""
    gut, conc = state
    absorbed = p.ka * gut
    return -absorbed, (absorbed - p.speed * f(conc)) / (p.v * p.weight)


problem = cl.ODE(
    physics,
    state=("gut", "conc"),
    parameters={
        "ka": cl.Positive(guess=1.5),  # absorption, 1/h
        "v": cl.LogNormal(-0.7, 0.2),  # volume, L per kg of body weight: textbooks say about a half
        "speed": cl.LogNormal(0.0, 0.02),  # of elimination, relative to the typical subject
        "weight": cl.Column(),  # kg, from the table
        "dose": cl.Column(),  # mg, from the table
    },
    initial=lambda p: (p.dose, 0.0),
    span=(0.0, 25.0),
    dt=0.1,
    observed="conc",
    closure=cl.MLP(increasing=True, zero_at_origin=True),
)
