def forward(x, scale):
    return scale * x


def backward(x, scale, gy):
    return scale * gy, (x * gy).sum(0)
