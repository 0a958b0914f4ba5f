/* SPDX-License-Identifier: Apache-2.0 */
/* The line that a manager prints when it serves, for whoever started it. */
#ifndef CNRE_TESTS_READY_H
#define CNRE_TESTS_READY_H

/* Reads the manager's standard output until "ready: ...". 1 the line came; 0 the program ended, or said nothing for long. */
int ready_wait(int fd);

#endif
