import numpy as np


def forward(basis):
    return gram_schmidt(basis)[0]


def backward(basis, gy):
    q, r = gram_schmidt(basis)
    independent = (q.real != 0).any(0)
    gq = gy * independent
    m = -gq.T @ q
    s = np.tril(m) + np.tril(m, -1).T
    return (np.linalg.solve(r, (gq + q @ s).T).T,)


def gram_schmidt(basis):
    """Return Q and R; a dependent column has zeros in Q and a unit vector in R."""
    points, modes = basis.shape
    q, r = np.zeros(basis.shape, basis.dtype), np.eye(modes, dtype=basis.dtype)
    for j, column in enumerate(basis.T):
        rest = column
        for _ in range(2):
            for p in range(j):
                rest = rest - (q[:, p] @ rest) * q[:, p]
        if np.linalg.norm(rest.real) > 4 * np.sqrt(points) * 2.3e-16 * np.linalg.norm(column.real):
            r[j, j] = np.sqrt(rest @ rest)
            q[:, j] = rest / r[j, j]
            r[:j, j] = q[:, :j].T @ column
    return q, r
