"""Pictures of a data set, decoded once for all the questions under way about them."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from weakref import WeakValueDictionary

from ...core.images import Picture, load_picture
from ..task import EvalImage, PictureFile

__all__ = ["SharedPictures"]


class SharedPictures:
    """Loads pictures, and gives one that a question under way holds already to the others that are about it.

    Data sets ask much about one picture in a row, and decoding it takes longer than much that is asked. What no
    question holds any more is forgotten.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: WeakValueDictionary[PictureFile, Picture] = WeakValueDictionary()
        self._loading: dict[PictureFile, Future[Picture]] = {}

    def load(self, image: EvalImage) -> Picture:
        """Returns the picture, from any thread.

        Raises:
            ImageError: it is missing or unreadable.
        """
        if not isinstance(image, PictureFile):  # in memory already, and not known by its name alone
            return load_picture(image.load())
        with self._lock:
            if (held := self._held.get(image)) is not None:
                return held
            loading = self._loading.get(image)
            if mine := loading is None:
                loading = self._loading[image] = Future()
        if not mine:
            return loading.result()
        try:
            picture = load_picture(image.load())
        except BaseException as error:
            with self._lock:
                del self._loading[image]
            loading.set_exception(error)
            raise
        with self._lock:
            self._held[image] = picture
            del self._loading[image]
        loading.set_result(picture)
        return picture
