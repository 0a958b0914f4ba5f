/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs: argv[0] is the verb's own name. Each returns the program's exit status: 0 done, 1 failed, 2 usage. */
#ifndef CNRE_SIM_VERBS_H
#define CNRE_SIM_VERBS_H

enum { SIM_DONE = 0, SIM_FAILED = 1, SIM_USAGE = 2 };

int sim_run(int argc, char **argv);
int sim_sweep(int argc, char **argv);
int sim_gate(int argc, char **argv);
int sim_plot(int argc, char **argv);

#endif
