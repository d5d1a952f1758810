from . import orthonormalize


def forward(u, basis):
    return u @ orthonormalize.forward(basis)


def backward(u, basis, gy):
    q = orthonormalize.forward(basis)
    return gy @ q.T, *orthonormalize.backward(basis, u.T @ gy)
