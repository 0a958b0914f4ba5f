/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ^C: SIGINT asks a run to end at its next expert, so that leases and session are given back before the process ends. A
 * second SIGINT kills at once. Not for other signals: those mean what they always do, and the manager cleans up.
 */
#ifndef ENGINE_STOP_H
#define ENGINE_STOP_H

#include <stdbool.h>

/* From here on; before, SIGINT ends the process as usual. Leaves an ignored SIGINT ignored (nohup, a shell's &). */
void stop_arm(void);
bool stop_is_asked(void);

#endif
