# SPDX-License-Identifier: MIT OR Apache-2.0
"""The program of the template `python`: runs code that it is given, or requests of a session."""

import _pando_session

_pando_session.main()
