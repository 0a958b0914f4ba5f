/* SPDX-License-Identifier: Apache-2.0 */
/* cnre-sim convert: a trace of any format becomes one of another. */
#ifndef CNRE_SIM_CONVERT_H
#define CNRE_SIM_CONVERT_H

/* argv[0] is the verb. Says on standard error what is wrong. Exit status: 0, 1 it failed, 2 usage. */
int sim_convert(int argc, char **argv);

#endif
