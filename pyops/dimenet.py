"""The basis of DimeNet as one: `radial_basis` and `spherical_basis` of the same distances."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from ._arrays import Array
from .ops.radial_basis import radial_basis
from .ops.spherical_basis import spherical_basis

Some = Array | None


class Basis:
    """Two operators side by side, with the phases of one."""

    __name__ = "dimenet_basis"

    def __call__(
        self,
        distances: Array,
        frequencies: Array,
        *,
        num_spherical: int = 7,
        num_radial: int = 6,
        exponent: int = 5,
    ) -> tuple[Array, Array]:
        """Radial and spherical basis of scaled distances.

        Parameters
        ----------
        distances : array, shape (num_edges,)
            Distances in units of the cutoff; of 0 or less, or from 1 on, both bases are 0.
        frequencies : array, shape (num_radial,)
            Frequencies of the radial basis, at first pi, 2 pi, ...
        num_spherical, num_radial : int
            Numbers of degrees and of radial functions.
        exponent : int
            Exponent of the envelope.

        Returns
        -------
        rbf : array, shape (num_edges, num_radial)
            See `radial_basis`.
        sbf : array, shape (num_edges, num_spherical * num_radial)
            See `spherical_basis`; `dimenet_aggregate` takes it.

        Raises
        ------
        TypeError, ValueError
            As both operators do; ValueError also if there are not num_radial frequencies.

        References
        ----------
        Gasteiger et al., Directional message passing for molecular graphs, arXiv:2003.03123.
        """
        options = self._options("", frequencies, num_spherical, num_radial, exponent)
        rbf = radial_basis(distances, frequencies, exponent=exponent)
        return rbf, spherical_basis(distances, **options)

    def forward(
        self, distances: Array, frequencies: Array, **options: int
    ) -> tuple[tuple[Array, Array], tuple[()]]:
        """Both bases, and what the backward phases can use again."""
        return self(distances, frequencies, **options), ()

    def backward(
        self,
        distances: Array,
        frequencies: Array,
        grbf: Some,
        gsbf: Some,
        *,
        saved: tuple[()] | None = None,
        wanted: Collection[str] | None = None,
        num_spherical: int = 7,
        num_radial: int = 6,
        exponent: int = 5,
    ) -> tuple[Some, Some]:
        """The gradients of <grbf, rbf> + <gsbf, sbf> by distances and frequencies."""
        options = self._options(".backward", frequencies, num_spherical, num_radial, exponent)
        by_distances, by_frequencies = radial_basis.backward(
            distances, frequencies, grbf, wanted=wanted, saved=saved, exponent=exponent
        )
        if by_distances is not None:
            spherical_basis.backward(
                distances, gsbf, out=(by_distances,), accumulate=True, **options
            )
        return by_distances, by_frequencies

    def double_backward(
        self,
        distances: Array,
        frequencies: Array,
        grbf: Some,
        gsbf: Some,
        hdistances: Some = None,
        hfrequencies: Some = None,
        *,
        saved: tuple[()] | None = None,
        num_spherical: int = 7,
        num_radial: int = 6,
        exponent: int = 5,
    ) -> tuple[Some, Some, Some, Some]:
        """The gradients of <hdistances, gdistances> + <hfrequencies, gfrequencies> by distances,
        frequencies, grbf and gsbf."""
        options = self._options(
            ".double_backward", frequencies, num_spherical, num_radial, exponent
        )
        by_distances, by_frequencies, dgrbf = radial_basis.double_backward(
            distances, frequencies, grbf, hdistances, hfrequencies, saved=saved, exponent=exponent
        )
        more, dgsbf = spherical_basis.double_backward(distances, gsbf, hdistances, **options)
        assert by_distances is not None
        assert more is not None
        return by_distances + more, by_frequencies, dgrbf, dgsbf

    def jvp(
        self,
        distances: Array,
        frequencies: Array,
        tdistances: Some = None,
        tfrequencies: Some = None,
        *,
        saved: tuple[()] | None = None,
        num_spherical: int = 7,
        num_radial: int = 6,
        exponent: int = 5,
    ) -> tuple[Array, Array]:
        """The derivatives of both bases in the direction of the tangents."""
        options = self._options(".jvp", frequencies, num_spherical, num_radial, exponent)
        tangents = distances, frequencies, tdistances, tfrequencies
        drbf = radial_basis.jvp(*tangents, saved=saved, exponent=exponent)
        return drbf, spherical_basis.jvp(distances, tdistances, **options)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return "dimenet_basis(distances, frequencies, *, num_spherical=7, num_radial=6, exponent=5)"

    @staticmethod
    def _options(
        phase: str, frequencies: Any, num_spherical: int, num_radial: int, exponent: int
    ) -> dict[str, Any]:
        shape = getattr(frequencies, "shape", None)
        if shape is not None and shape != (num_radial,):
            raise ValueError(
                f"dimenet_basis{phase}: frequencies: expected shape (num_radial={num_radial},), "
                f"got {shape}"
            )
        return {"num_spherical": num_spherical, "num_radial": num_radial, "exponent": exponent}


dimenet_basis = Basis()
