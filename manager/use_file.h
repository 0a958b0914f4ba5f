/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that says how often experts were used (model/use_list.h), read by the writer's thread: it may lie on a drive that
 * hangs, and then only what is read and written there waits. The core thread begins it and gets the result.
 */
#ifndef CNRE_MANAGER_USE_FILE_H
#define CNRE_MANAGER_USE_FILE_H

#include "manager/manager.h"
#include "manager/worker.h"
#include "model/use_list.h"

#include <limits.h>

#define USE_FILE_NAME_BYTES 256

struct use_file {
	struct worker_job job;       /* first: run and done get its address */
	const struct served_model *model;
	int fd;                      /* -1: `path` is opened */
	char path[PATH_MAX];
	char name[USE_FILE_NAME_BYTES]; /* for people */
	struct use_list list;        /* where result is 0 */
	int result;                  /* 0 or -errno, and then: */
	char message[256];
	int is_reading;
	void *owner;                 /* whose the calls are */
	void (*prepare)(void *owner); /* on the writer's thread, where the file was read; NULL: nothing */
	void (*done)(void *owner);   /* on the core thread; who has used the list closes it */
};

/* The file is named by a person, so the engine that wrote it may be another; its dimensions may not. fd is taken over. */
void use_file_read_fd(struct use_file *file, struct worker *writer, int fd);
void use_file_read_path(struct use_file *file, struct worker *writer, const char *path);
void use_file_name(struct use_file *file, const char *name);

/* The engine that signed it where that is another than the model's, or NULL. */
const char *use_file_other_writer(const struct use_file *file, char *text, size_t bytes);

#endif
