/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of uses from and for engines: what a file counts is added to what the manager knows, and what it knows is
 * written as an engine of that family would. One import at a time. Core thread only.
 */
#ifndef CNRE_MANAGER_USE_IMPORT_H
#define CNRE_MANAGER_USE_IMPORT_H

#include "manager/manager.h"
#include "manager/use_file.h"

struct use_import;

int use_import_open(struct manager *manager); /* 0 or -ENOMEM */
void use_import_close(struct manager *manager); /* after the writer */

/* Begins: fd is taken over on success. 0, or -EALREADY: one is under way. */
int use_import_start(struct manager *manager, const struct served_model *model, const char *name, int fd);

enum use_import_state { USE_IMPORT_NONE, USE_IMPORT_READING, USE_IMPORT_DONE, USE_IMPORT_FAILED };
struct use_import_status {
	enum use_import_state state;
	const struct served_model *model;
	const char *name, *kind;     /* of the file */
	const char *writer;          /* an engine of another family wrote it; or "" */
	const char *error;           /* USE_IMPORT_FAILED */
	uint64_t experts, uses;      /* that were added */
};
void use_import_get_status(const struct manager *manager, struct use_import_status *ret_status);

/* The history of a model as its engine writes it, in memory of its own (free). 0 or -ENOMEM. */
struct use_export {
	char *text;
	size_t bytes;
	const char *engine;
	uint64_t experts, uses;
};
int use_export_make(struct manager *manager, const struct served_model *model, struct use_export *ret_export);

#endif
