/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints and copies of them; see mirrored.h. */
#include "tests/support/mirrored.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD "model-%05d-of-00003.safetensors"

static void give_up(const char *what)
{
	perror(what);
	_exit(99);
}

static void run(const char *command)
{
	if (system(command) != 0)
		give_up(command);
}

void mirrored_run(const struct mirrored *mirrored, const char *format)
{
	char command[1024], *at = command;

	for (; *format != '\0'; format++) {
		if (format[0] == '%' && format[1] == 's') {
			at += sprintf(at, "%s", mirrored->path);
			format++;
		} else {
			*at++ = *format;
		}
	}
	*at = '\0';
	run(command);
}

void mirrored_open(struct mirrored *mirrored)
{
	(void)snprintf(mirrored->path, sizeof mirrored->path, "/var/tmp/cnre-test-mirror-XXXXXX");
	if (mkdtemp(mirrored->path) == NULL)
		give_up("mkdtemp");
	(void)snprintf(mirrored->model, sizeof mirrored->model, "%s/model", mirrored->path);
	mirrored_write(mirrored, "model", 1, MIRRORED_WIDTH);
}

void mirrored_close(const struct mirrored *mirrored)
{
	char command[192];

	(void)snprintf(command, sizeof command, "chmod -R u+rwx '%s'; rm -rf '%s'", mirrored->path, mirrored->path);
	run(command);
}

const char *mirrored_shard(const struct mirrored *mirrored, const char *folder, int number, char *text)
{
	(void)sprintf(text, "%s/%s/" SHARD, mirrored->path, folder, number);
	return text;
}

/* ---- writing ---- */

static uint64_t add(char *header, const char *name, const char *dtype, uint64_t elements, uint64_t bytes, uint64_t at)
{
	(void)sprintf(header + strlen(header),
		      "%c\"%s\":{\"dtype\":\"%s\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
		      header[0] == '\0' ? '{' : ',', name, dtype, (unsigned long long)elements, (unsigned long long)at,
		      (unsigned long long)(at + bytes));
	return at + bytes;
}

static uint64_t describe_layer(char *header, int layer, uint64_t width)
{
	uint64_t at = 0;
	char name[96];

	for (int e = 0; e < MIRRORED_EXPERTS; e++) {
		(void)sprintf(name, "model.layers.%d.mlp.experts.%d.merged_weight", layer, e);
		at = add(header, name, "I8", 3 * width * MIRRORED_WIDTH, 3 * width * MIRRORED_WIDTH, at);
		(void)sprintf(name, "model.layers.%d.mlp.experts.%d.qs", layer, e);
		at = add(header, name, "F32", 2 * width + MIRRORED_WIDTH, 4 * (2 * width + MIRRORED_WIDTH), at);
	}
	return at;
}

static void write_shard(const char *path, char *header, uint64_t data_bytes, unsigned seed)
{
	unsigned char *bytes = malloc(data_bytes), prefix[8];
	FILE *file = fopen(path, "w");
	size_t length;

	(void)strcat(header, "}");
	length = strlen(header);
	if (file == NULL || bytes == NULL)
		give_up(path);
	for (unsigned i = 0; i < 8; i++)
		prefix[i] = (unsigned char)(length >> 8 * i);
	for (uint64_t i = 0; i < data_bytes; i++)
		bytes[i] = (unsigned char)(i * 31 + i / 251 + seed * 97);
	if (fwrite(prefix, 8, 1, file) != 1 || fwrite(header, length, 1, file) != 1 ||
	    fwrite(bytes, data_bytes, 1, file) != 1 || fclose(file) != 0)
		give_up(path);
	free(bytes);
}

void mirrored_write(const struct mirrored *mirrored, const char *folder, unsigned seed, unsigned width)
{
	char path[256], header[8192];
	FILE *file;

	(void)snprintf(path, sizeof path, "%s/%s", mirrored->path, folder);
	if (mkdir(path, 0755) < 0)
		give_up(path);
	(void)snprintf(path, sizeof path, "%s/%s/config.json", mirrored->path, folder);
	file = fopen(path, "w");
	if (file == NULL)
		give_up(path);
	(void)fprintf(file,
		      "{\"model_type\":\"olmoe\",\"hidden_size\":%d,\"num_hidden_layers\":%d,\"num_experts\":%d,"
		      "\"num_experts_per_tok\":1,\"intermediate_size\":%u}",
		      MIRRORED_WIDTH, MIRRORED_LAYERS, MIRRORED_EXPERTS, width);
	(void)fclose(file);
	for (int i = 0; i < MIRRORED_LAYERS; i++) {
		uint64_t bytes;

		header[0] = '\0';
		bytes = describe_layer(header, i, width);
		write_shard(mirrored_shard(mirrored, folder, i + 1, path), header, bytes, seed);
	}
	header[0] = '\0';
	write_shard(mirrored_shard(mirrored, folder, 3, path), header,
		    add(header, "lm_head.weight", "F32", 1000, 4000, 0), seed);
}

/* ---- copies ---- */

const char *mirrored_copy(const struct mirrored *mirrored, const char *folder, const int *shards, char *text)
{
	char command[512], path[256];

	(void)sprintf(text, "%s/%s", mirrored->path, folder);
	(void)snprintf(command, sizeof command, "mkdir -p '%s'", text);
	run(command);
	for (; *shards != 0; shards++) {
		(void)snprintf(command, sizeof command, "cp -p '%s' '%s'",
			       mirrored_shard(mirrored, "model", *shards, path), text);
		run(command);
	}
	return text;
}

void mirrored_flip(const char *path, uint64_t off, uint64_t bytes)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	unsigned char *memory = malloc(bytes);
	struct stat before;

	if (fd < 0 || fstat(fd, &before) < 0 || pread(fd, memory, bytes, (off_t)off) != (ssize_t)bytes)
		give_up(path);
	for (uint64_t i = 0; i < bytes; i++)
		memory[i] ^= 0x55;
	if (pwrite(fd, memory, bytes, (off_t)off) != (ssize_t)bytes ||
	    futimens(fd, (const struct timespec[2]){before.st_atim, before.st_mtim}) < 0)
		give_up(path);
	free(memory);
	(void)close(fd);
}
