"""The correctness matrix: every version of the ladder, on every problem, launch and kind of input promised."""


def test_matrix(version, case, judge):
    judge(case)
