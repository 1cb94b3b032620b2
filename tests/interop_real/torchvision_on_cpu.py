"""Lets torchvision's published wheel be imported beside a CPU build of torch.

The wheel's compiled operators are linked against CUDA and cannot be loaded. Its transforms, for which other packages
import it, are Python. Importing it fails only because it describes the shapes of two operators that were not loaded.
They are declared here, without an implementation, just before torchvision is first imported.

`make interop` puts this file and a `.pth` file that imports it into its environment.
"""

import importlib.abc
import sys

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


class _DeclaresOperators(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            if torch.version.cuda is not None:  # its operators can be loaded
                return
            self.library = torch.library.Library("torchvision", "DEF")
            for operator in _OPERATORS:
                self.library.define(operator)
            _KEPT.append(self)


_KEPT = []
sys.meta_path.insert(0, _DeclaresOperators())
