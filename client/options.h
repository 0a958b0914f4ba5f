/* SPDX-License-Identifier: Apache-2.0 */
/* What a caller asks of cnre_attach, checked and completed. */
#ifndef CNRE_CLIENT_OPTIONS_H
#define CNRE_CLIENT_OPTIONS_H

#include "base/fingerprint.h"
#include "base/places.h"
#include "client/client.h"

/* The time that a timeout of 0 allows for the answer of a manager that is there; nothing else is waited for. */
#define CNRE_ATTACH_POLL_NS 2000000000LL

struct cnre_attach_request {
	struct cnre_options options;      /* a full struct, name and view never NULL */
	const char *model;                /* the real path, or a served model's name */
	int by_path;
	struct cnre_places *places;       /* by path: where its shards lie; else NULL. A client takes it over */
	struct cnre_fingerprint fingerprint; /* by path */
	int64_t deadline_ns;
	char path[PATH_MAX];
};

/* Reads the caller's options by their size. 0 or -EINVAL. */
int cnre_options_read(const struct cnre_options *given, struct cnre_options *ret_options);

/*
 * Finds out what `model` is; its shards may lie in the directories of $CNRE_DIRS too. 0, -EINVAL, -ENOENT, -EACCES,
 * -EBADMSG, … On success request->places is the caller's to close.
 */
int cnre_options_find_model(struct cnre_attach_request *request, const char *model);

/* The attach message of a request. */
void cnre_options_fill_hello(const struct cnre_attach_request *request, struct cnre_wire_hello *ret_hello);

#endif
