from . import orthonormalize


def forward(x, basis):
    return x @ orthonormalize.forward(basis).T


def backward(x, basis, gy):
    q = orthonormalize.forward(basis)
    return gy @ q, *orthonormalize.backward(basis, gy.T @ x)
