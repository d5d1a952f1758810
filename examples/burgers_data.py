"""Solutions of Burgers' equation on [0, 1] with u = 0 at both ends, by a sine spectral method.

    du/dt + u du/dx = viscosity d2u/dx2

Odd waves of period 2 stay odd: on [-1, 1] they are a Fourier series. The viscous term is exact by
an integrating factor, the other goes by fourth-order Runge-Kutta, free of aliasing by the 2/3 rule.
"""

import numpy as np

VISCOSITY, END, GRID, STEPS, HARMONICS = 0.02, 0.3, 512, 300, 6


def draw_waves(samples, seed):
    """Random sine coefficients [samples, HARMONICS], smaller for shorter waves."""
    size = 1.5 / (1 + np.arange(HARMONICS)) ** 1.2
    return np.random.default_rng(seed).standard_normal((samples, HARMONICS)) * size


def solve_waves(coefficients, points, steps=STEPS):
    """u at first and at the end [samples, points], both ends of the interval included."""
    harmonics = 1 + np.arange(coefficients.shape[1])
    x = np.linspace(-1, 1, GRID, endpoint=False)
    frequency = np.pi * np.arange(GRID // 2 + 1)
    kept = frequency < np.pi * GRID / 3
    step = END / steps
    decay = np.exp(-VISCOSITY * frequency**2 * step / 2)

    def slope(spectrum):
        """Of -u^2/2 by x."""
        u = np.fft.irfft(spectrum, GRID)
        return np.where(kept, -0.5j * frequency * np.fft.rfft(u * u), 0)

    spectrum = np.fft.rfft(coefficients @ np.sin(np.pi * harmonics[:, None] * x))
    for _ in range(steps):
        a = slope(spectrum)
        b = slope(decay * (spectrum + step / 2 * a))
        c = slope(decay * spectrum + step / 2 * b)
        d = slope(decay**2 * spectrum + step * decay * c)
        spectrum = decay**2 * (spectrum + step / 6 * a) + step / 6 * (2 * decay * (b + c) + d)
    place = np.linspace(0, 1, points)
    first = coefficients @ np.sin(np.pi * harmonics[:, None] * place)
    # x starts at -1, where sin(pi m (x + 1)) = (-1)^m sin(pi m x).
    sines = -2 * spectrum.imag[:, kept] / GRID * (-1.0) ** np.arange(kept.sum())
    return first, sines @ np.sin(frequency[kept][:, None] * place)
