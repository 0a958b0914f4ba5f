/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a verb of a program within the test and keeps what it printed. In a test's own process only. */
#ifndef CNRE_TESTS_SUPPORT_CAPTURED_H
#define CNRE_TESTS_SUPPORT_CAPTURED_H

struct captured {
	int status;                  /* what the verb returned */
	char *out, *error;           /* of standard output and standard error */
};

/* The words of `line` are argv; they are separated by one space. */
struct captured captured_run(int (*verb)(int argc, char **argv), const char *line);
void captured_free(struct captured *captured);

#endif
