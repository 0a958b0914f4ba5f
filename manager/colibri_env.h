/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With --colibri-env, the variables by which users of Colibri's engines name their drives are settings of the manager:
 * less than its own variables (CNRE_...), more than defaults. Without it they are passed over, and said: an engine's user
 * must not believe that the mirror is read. Of variables that mean the same the first that is set counts.
 */
#ifndef CNRE_MANAGER_COLIBRI_ENV_H
#define CNRE_MANAGER_COLIBRI_ENV_H

#include "manager/settings.h"

#define COLIBRI_ENV_ITEMS_MAX 4u  /* of a list, as in the engines */

/* Into settings that hold defaults only. 0, -EINVAL or -ENOMEM with one line that names the variable. */
int colibri_env_read(struct settings *settings, char *message, size_t message_bytes);

/* For status and --check: what became of the index'th variable that is set. 1, or 0 behind the last. */
struct colibri_env_line {
	const char *name;
	int is_used;
	char what[160];                   /* "is --mirror", "ignored: ..." */
};
int colibri_env_describe(const struct settings *settings, uint32_t index, struct colibri_env_line *ret_line);

#endif
