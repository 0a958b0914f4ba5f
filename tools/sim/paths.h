/* SPDX-License-Identifier: Apache-2.0 */
/* Trace files as the command line names them: files, or directories of which the right files are taken. */
#ifndef CNRE_SIM_PATHS_H
#define CNRE_SIM_PATHS_H

#include "tools/sim/options.h"

/*
 * Appends a file, or those of a directory, in order of their names. Of a directory: what begins with `prefix` ("eval_",
 * "train_"), or, if nothing does, every file but hidden ones, JSON, Markdown and those of the other split. 0, -ENOENT
 * (an empty directory), -ENOMEM, -E2BIG or the error of reading it; message: one line.
 */
int sim_paths_add(struct sim_paths *paths, const char *name, const char *prefix, char *message, size_t message_bytes);
void sim_paths_close(struct sim_paths *paths);

#endif
