"""Which pairs do not match, from arrays alone: folds, evidence, combination, calibration, judgement."""

from pairsift.detect.judged_pairs import JudgedPairs
from pairsift.detect.judgement import Judgement, judge_pairs
from pairsift.detect.near_mismatches import judge_near_mismatches
from pairsift.detect.options import DetectOptions

__all__ = ["DetectOptions", "JudgedPairs", "Judgement", "judge_near_mismatches", "judge_pairs"]
