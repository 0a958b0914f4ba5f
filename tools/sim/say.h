/* SPDX-License-Identifier: Apache-2.0 */
/* How verbs begin and complain: one line on standard error, with program and verb before it. */
#ifndef CNRE_SIM_SAY_H
#define CNRE_SIM_SAY_H

#include "tools/sim/report.h"
#include "tools/sim/study.h"

/* returns status */
int sim_say(const char *verb, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));
int sim_say_error(const char *verb, int error); /* SIM_FAILED */

/*
 * Options and study of a verb. -1: go on; otherwise the exit status (help was shown, or what is wrong was said).
 * sim_end gives both back.
 */
int sim_begin(int argc, char **argv, enum sim_verb verb, struct sim_options *ret_options, struct sim_study *ret_study);
void sim_end(struct sim_options *options, struct sim_study *study);

/* One line where a pool does not hold one token's lookups. */
void sim_warn(const char *verb, const struct sim_study_arm *arm);

#endif
