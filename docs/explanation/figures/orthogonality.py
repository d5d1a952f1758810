"""Loss of orthogonality of methods for the QR factorisation, in float32."""

import numpy as np
from drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, plot

import pyops

POINTS, MODES = 1024, 32


def basis(condition, rng):
    """Return a basis with the given condition number."""
    left = np.linalg.qr(rng.standard_normal((POINTS, MODES)))[0]
    right = np.linalg.qr(rng.standard_normal((MODES, MODES)))[0]
    return (left * np.geomspace(1, 1 / condition, MODES) @ right).astype(np.float32)


def gram_schmidt(basis, modified):
    """Return Q of one pass of Gram-Schmidt, classical or modified."""
    q = basis.copy()
    for j in range(MODES):
        if modified:
            for k in range(j):
                q[:, j] -= (q[:, k] @ q[:, j]) * q[:, k]
        else:
            q[:, j] -= q[:, :j] @ (q[:, :j].T @ basis[:, j])
        q[:, j] /= np.linalg.norm(q[:, j])
    return q


def cholesky_qr(basis):
    """Return Q of one Cholesky-QR in float32, NaN if the Gram matrix is not definite."""
    try:
        factor = np.linalg.cholesky(basis.T @ basis)
    except np.linalg.LinAlgError:
        return np.full_like(basis, np.nan)
    return np.linalg.solve(factor, basis.T).T


METHODS = {
    "classical Gram-Schmidt": (lambda b: gram_schmidt(b, False), ORANGE, "o"),
    "Cholesky-QR": (cholesky_qr, PURPLE, "s"),
    "modified Gram-Schmidt": (lambda b: gram_schmidt(b, True), BLUE, "^"),
    "orthonormalize": (pyops.orthonormalize, GREEN, "D"),
}
rng = np.random.default_rng(0)
conditions = np.geomspace(1, 1e5, 11)
bases = [basis(c, rng) for c in conditions]

figure, axes = plot(3.6)
for name, (method, color, marker) in METHODS.items():
    found = [method(b).astype(np.float64) for b in bases]
    errors = [np.linalg.norm(np.eye(MODES) - q.T @ q) for q in found]
    axes.plot(conditions, errors, marker=marker, markersize=4.5, color=color, label=name)
limit = POINTS * np.finfo(np.float32).eps
axes.axhline(limit, color=GREY, linewidth=1.2, linestyle=":")
axes.text(1, limit * 1.3, "n eps", color=GREY)
axes.set(
    xscale="log",
    yscale="log",
    xlabel="condition number of the basis",
    ylabel=r"$\Vert I-Q^TQ\Vert$",
    ylim=(1e-7, 30),
)
axes.legend(loc="upper left", bbox_to_anchor=(0, 1.02))
axes.minorticks_off()
