"""Images: groups of guests with mostly the same contents, found without names."""

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ksmith_fleet.incidence import Incidence

LEAST_TELLING = 0.25
"""The least part of a guest's shared contents that at most half of all guests hold, for these alone to say its image."""


def find_images(incidence: Incidence, alike: float = 0.5, most: int = 2000) -> npt.NDArray[np.int64]:
    """Gives each guest the number of its image, by leader clustering.

    A guest joins the leader with the largest `common / min(size)` if that is at least `alike`; else it leads an image of its
    own. Contents of more than half of all guests do not count, since they say nothing about the image. Only guests that hold hardly
    any others, such as clones of one image that most guests have, are grouped by all of theirs.
    """
    guests = incidence.guests
    holders = incidence.holders()
    telling = np.flatnonzero(holders <= max(2, guests // 2))
    everything = incidence.matrix()
    matrix = everything.tocsc()[:, telling].tocsr()
    is_clone = np.diff(matrix.indptr) < LEAST_TELLING * np.diff(everything.indptr)
    image = np.empty(guests, dtype=np.int64)
    image[~is_clone] = _led(matrix[np.flatnonzero(~is_clone)], alike, most)
    image[is_clone] = _led(everything[np.flatnonzero(is_clone)], alike, most) + guests
    _, dense = np.unique(image, return_inverse=True)
    return dense.astype(np.int64)


def _led(matrix: csr_array, alike: float, most: int) -> npt.NDArray[np.int64]:
    """Gives each row the number of its leader.

    Rows are taken by falling size, so that the fullest guest of an image leads it. Beyond `most` images the nearest leader is taken.
    """
    guests = matrix.shape[0]
    columns = matrix.tocsc()
    holders = np.diff(columns.indptr)
    sizes = np.diff(matrix.indptr)
    image = np.full(guests, -1, dtype=np.int64)
    left = np.argsort(-sizes, kind="stable")
    best = np.zeros(guests)
    leaders = 0
    for guest in left:
        if image[guest] >= 0 and best[guest] >= alike:
            continue
        if leaders == most:
            break
        if image[guest] < 0 or best[guest] < alike:
            held = matrix.indices[matrix.indptr[guest] : matrix.indptr[guest + 1]]
            # The holders of its contents lie in as many pieces. A product of matrices would read all entries for each leader.
            counts = holders[held]
            at = np.repeat(columns.indptr[held] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(counts.sum())
            common = np.bincount(columns.indices[at], minlength=guests)
            near = common / np.maximum(1, np.minimum(sizes, sizes[guest]))
            near[guest] = 2.0
            closer = (near > best) & ((near >= alike) | (image < 0))
            image[closer] = leaders
            best = np.where(closer, near, best)
            leaders += 1
    return image


def similarity_order(incidence: Incidence, image: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Orders guests so that guests of one image stand together and like images beside each other.

    Images are chained: after each comes the one with the most contents in common with it.
    """
    if not len(image):
        return np.zeros(0, dtype=np.int64)
    count = int(image.max()) + 1
    first = np.full(count, -1, dtype=np.int64)
    sizes = np.diff(incidence.starts)
    for guest in np.argsort(sizes, kind="stable"):
        first[image[guest]] = guest
    near = incidence.subset(first).common().astype(np.float64)
    np.fill_diagonal(near, -1)
    members = np.bincount(image, minlength=count)
    at = int(np.argmax(members))
    chain = [at]
    free = np.ones(count, dtype=bool)
    free[at] = False
    while free.any():
        at = int(np.argmax(np.where(free, near[at], -2)))
        free[at] = False
        chain.append(at)
    rank = np.empty(count, dtype=np.int64)
    rank[chain] = np.arange(count)
    return np.lexsort((-sizes, rank[image]))
