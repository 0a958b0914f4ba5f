/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files: small ones read at once, and new ones that appear whole or not at all. */
#ifndef CNRE_SIM_FILE_H
#define CNRE_SIM_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A regular file of at most max_bytes, with a NUL after it; free it. 0, or an error with its line. */
int sim_file_read(const char *path, uint64_t max_bytes, char **ret_text, size_t *ret_bytes, char *message,
		  size_t message_bytes);

struct sim_output {
	char path[4096], temporary[4096 + 32];
	FILE *file;
};

/* Begins beside `path`, under another name. 0, -EEXIST (it is there, and force is 0), or an error; each with its line. */
int sim_output_open(struct sim_output *ret_output, const char *path, int force, char *message, size_t message_bytes);
/*
 * Gives it its name, once all of it is on the disk. Without force nothing is replaced, even if it came to be meanwhile.
 * 0 or an error with its line; closed in either case, and on failure nothing is left.
 */
int sim_output_commit(struct sim_output *output, int force, char *message, size_t message_bytes);
void sim_output_abandon(struct sim_output *output);

#endif
