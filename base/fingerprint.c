/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content identity of a checkpoint; the definition is in fingerprint.h. All names are opened relative to an open directory,
 * so a directory that is renamed meanwhile cannot mix two models. Both manager and client link this file.
 */
#include "base/fingerprint.h"

#include "base/check.h"
#include "base/file.h"
#include "base/message.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES 65536u
#define SUFFIX ".safetensors"
#define FIELD_FORMAT 'f' /* tags: no field can be read as one of another kind */
#define FIELD_CONFIG 'c'
#define FIELD_NAME 'n'
#define FIELD_SIZE 's'
#define FIELD_HEADER 'h'

struct scan {
	EVP_MD_CTX *identity, *names, *first, *part; /* part: config.json, then each header in turn */
	unsigned char *buffer;
	char *message;
	size_t message_bytes;
	int config_fd; /* the directory of config.json */
};

__attribute__((format(printf, 3, 4))) static int fail(const struct scan *scan, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	(void)cnre_message_list(scan->message, scan->message_bytes, error, format, arguments);
	va_end(arguments);
	return error;
}

static int add(EVP_MD_CTX *digest, const void *bytes, size_t n)
{
	return EVP_DigestUpdate(digest, bytes, n) == 1 ? 0 : -ENOMEM;
}

static int add_field_start(EVP_MD_CTX *digest, char tag, uint64_t n)
{
	unsigned char start[9];
	unsigned i;

	start[0] = (unsigned char)tag;
	for (i = 0; i < 8; i++)
		start[1 + i] = (unsigned char)(n >> 8 * i);
	return add(digest, start, sizeof start);
}

static int add_field(EVP_MD_CTX *digest, char tag, const void *bytes, size_t n)
{
	int result = add_field_start(digest, tag, n);

	return result < 0 ? result : add(digest, bytes, n);
}

static int add_number(EVP_MD_CTX *digest, char tag, uint64_t value)
{
	unsigned char bytes[8];
	unsigned i;

	for (i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(value >> 8 * i);
	return add_field(digest, tag, bytes, sizeof bytes);
}

static int restart(EVP_MD_CTX *digest)
{
	return EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;
}

static int finish(EVP_MD_CTX *digest, unsigned char result[CNRE_DIGEST_BYTES])
{
	return EVP_DigestFinal_ex(digest, result, NULL) == 1 ? 0 : -ENOMEM;
}

/* Feeds the first `bytes` of a file into scan->part and, if asked, into the identity too. */
static int add_file_start(struct scan *scan, int fd, const char *name, uint64_t bytes, int into_identity)
{
	uint64_t done, want;
	int64_t got;
	int result;

	for (done = 0; done < bytes; done += want) {
		want = bytes - done < BUFFER_BYTES ? bytes - done : BUFFER_BYTES;
		got = cnre_file_read(fd, scan->buffer, want, done);
		if (got < 0)
			return fail(scan, (int)got, "%s: reading at byte %llu: %s", name, (unsigned long long)done,
				    strerror((int)-got));
		if ((uint64_t)got < want)
			return fail(scan, -EBADMSG, "%s: became shorter while it was read: stop what writes it", name);
		result = add(scan->part, scan->buffer, (size_t)want);
		if (result == 0 && into_identity)
			result = add(scan->identity, scan->buffer, (size_t)want);
		if (result < 0)
			return fail(scan, result, "%s: SHA-256 failed", name);
	}
	return 0;
}

static int add_config(struct scan *scan, unsigned char digest[CNRE_DIGEST_BYTES])
{
	uint64_t bytes;
	int fd, result;

	fd = cnre_file_open(scan->config_fd, "config.json", &bytes);
	if (fd < 0)
		return fail(scan, fd, "config.json: %s: name the directory of a checkpoint", strerror(-fd));
	if (bytes > CNRE_CONFIG_BYTES_MAX) {
		result = fail(scan, -EBADMSG, "config.json: %llu bytes, more than the bound of %u",
			      (unsigned long long)bytes, CNRE_CONFIG_BYTES_MAX);
		goto out;
	}
	result = restart(scan->part);
	if (result == 0)
		result = add_field_start(scan->identity, FIELD_CONFIG, bytes);
	if (result == 0)
		result = add_file_start(scan, fd, "config.json", bytes, 1);
	if (result == 0)
		result = finish(scan->part, digest);
out:
	(void)close(fd);
	return result;
}

/* Header length of an open shard, checked against the file and the bound. */
static int header_bytes(const struct scan *scan, int fd, const char *name, uint64_t file_bytes, uint64_t *ret_bytes)
{
	unsigned char prefix[8];
	uint64_t bytes = 0;
	int64_t got;
	unsigned i;

	got = cnre_file_read(fd, prefix, sizeof prefix, 0);
	if (got < 0)
		return fail(scan, (int)got, "%s: reading at byte 0: %s", name, strerror((int)-got));
	if (got < (int64_t)sizeof prefix)
		return fail(scan, -EBADMSG, "%s: %lld bytes, not even a header length: download it again", name,
			    (long long)got);
	for (i = 0; i < 8; i++)
		bytes |= (uint64_t)prefix[i] << 8 * i;
	if (bytes > CNRE_SHARD_HEADER_MAX)
		return fail(scan, -EBADMSG, "%s: header of %llu bytes, more than the bound of %llu: " CNRE_SHARD_HEADER_ADVICE, name,
			    (unsigned long long)bytes, (unsigned long long)CNRE_SHARD_HEADER_MAX);
	if (file_bytes < 8 || bytes > file_bytes - 8)
		return fail(scan, -EBADMSG, "%s: header of %llu bytes but the file has only %llu: download it again",
			    name, (unsigned long long)bytes, (unsigned long long)file_bytes);
	*ret_bytes = bytes;
	return 0;
}

static int digest_header(struct scan *scan, int fd, const char *name, uint64_t file_bytes,
			 unsigned char digest[CNRE_DIGEST_BYTES])
{
	uint64_t bytes = 0;
	int result;

	result = header_bytes(scan, fd, name, file_bytes, &bytes);
	if (result == 0)
		result = restart(scan->part);
	if (result == 0)
		result = add_file_start(scan, fd, name, 8 + bytes, 0);
	if (result == 0)
		result = finish(scan->part, digest);
	return result;
}

static int add_shard(struct scan *scan, const struct cnre_shard_at *shard)
{
	unsigned char digest[CNRE_DIGEST_BYTES];
	uint64_t file_bytes;
	int fd, result;

	fd = cnre_file_open(shard->directory_fd, shard->name, &file_bytes);
	if (fd < 0)
		return fail(scan, fd, "%.300s: %s", shard->shown, strerror(-fd));
	result = digest_header(scan, fd, shard->shown, file_bytes, digest);
	(void)close(fd);
	if (result == 0)
		result = add_field(scan->identity, FIELD_NAME, shard->name, strlen(shard->name));
	if (result == 0)
		result = add_number(scan->identity, FIELD_SIZE, file_bytes);
	if (result == 0)
		result = add_field(scan->identity, FIELD_HEADER, digest, sizeof digest);
	if (result == 0)
		result = add_field(scan->names, FIELD_NAME, shard->name, strlen(shard->name));
	if (result == 0 && shard->directory_fd == scan->config_fd)
		result = add_field(scan->first, FIELD_NAME, shard->name, strlen(shard->name));
	return result;
}

static int is_shard(const char *name)
{
	size_t n = strlen(name), suffix = sizeof SUFFIX - 1;

	return name[0] != '.' && n > suffix && strcmp(name + n - suffix, SUFFIX) == 0;
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(char **names, int *count, const char *name)
{
	if (*count == CNRE_SHARDS_MAX)
		return -E2BIG;
	names[*count] = strdup(name);
	if (names[*count] == NULL)
		return -ENOMEM;
	(*count)++;
	return 0;
}

static int collect_names(DIR *directory, char **names, int *count)
{
	struct dirent *entry;
	int result = 0;

	while (result == 0) {
		errno = 0;
		entry = readdir(directory);
		if (entry == NULL)
			return -errno; /* 0 at the end */
		if (is_shard(entry->d_name))
			result = add_name(names, count, entry->d_name);
	}
	return result;
}

void cnre_fingerprint_free_names(char **names, int count)
{
	int i;

	for (i = 0; i < count && names != NULL; i++)
		free(names[i]);
	free(names);
}

static int list_opened(DIR *directory, char ***ret_names)
{
	char **names;
	int count = 0, result;

	names = calloc(CNRE_SHARDS_MAX, sizeof *names);
	if (names == NULL)
		return -ENOMEM;
	result = collect_names(directory, names, &count);
	if (result < 0) {
		cnre_fingerprint_free_names(names, count);
		return result;
	}
	qsort(names, (size_t)count, sizeof *names, by_bytes);
	*ret_names = names;
	return count;
}

int cnre_fingerprint_list_shards(const char *directory, char ***ret_names)
{
	DIR *opened = opendir(directory);
	int result;

	if (opened == NULL)
		return -errno;
	result = list_opened(opened, ret_names);
	(void)closedir(opened);
	return result;
}

static int add_all(struct scan *scan, const struct cnre_shard_at *shard, uint32_t count,
		   struct cnre_fingerprint *fingerprint)
{
	static const char format[] = "cnre-model-1";
	int result;

	if (restart(scan->identity) < 0 || restart(scan->names) < 0 || restart(scan->first) < 0)
		return -ENOMEM;
	result = add_field(scan->identity, FIELD_FORMAT, format, sizeof format - 1);
	if (result == 0)
		result = add_config(scan, fingerprint->config);
	for (uint32_t i = 0; i < count && result == 0; i++)
		result = add_shard(scan, &shard[i]);
	if (result == 0)
		result = finish(scan->identity, fingerprint->identity);
	if (result == 0)
		result = finish(scan->names, fingerprint->names);
	if (result == 0)
		result = finish(scan->first, fingerprint->first);
	fingerprint->shard_count = count;
	return result;
}

int cnre_fingerprint_shards(int config_fd, const struct cnre_shard_at *shard, uint32_t shard_count,
			    struct cnre_fingerprint *ret_fingerprint, char *ret_message, size_t message_bytes)
{
	struct scan scan = {.message = ret_message, .message_bytes = message_bytes, .config_fd = config_fd};
	struct cnre_fingerprint fingerprint = {.shard_count = 0};
	int result;

	scan.buffer = malloc(BUFFER_BYTES);
	scan.identity = EVP_MD_CTX_new();
	scan.names = EVP_MD_CTX_new();
	scan.first = EVP_MD_CTX_new();
	scan.part = EVP_MD_CTX_new();
	if (scan.buffer == NULL || scan.identity == NULL || scan.names == NULL || scan.first == NULL || scan.part == NULL)
		result = fail(&scan, -ENOMEM, "out of memory");
	else
		result = add_all(&scan, shard, shard_count, &fingerprint);
	if (result == 0)
		*ret_fingerprint = fingerprint;
	EVP_MD_CTX_free(scan.part);
	EVP_MD_CTX_free(scan.first);
	EVP_MD_CTX_free(scan.names);
	EVP_MD_CTX_free(scan.identity);
	free(scan.buffer);
	return result;
}

static int identify_named(int directory_fd, char **names, int count, struct cnre_fingerprint *ret_fingerprint,
			  char *ret_message, size_t message_bytes)
{
	struct cnre_shard_at *shard = calloc((size_t)count, sizeof *shard);
	int result;

	if (shard == NULL)
		return cnre_message(ret_message, message_bytes, -ENOMEM, "out of memory");
	for (int i = 0; i < count; i++)
		shard[i] = (struct cnre_shard_at){.directory_fd = directory_fd, .name = names[i], .shown = names[i]};
	result = cnre_fingerprint_shards(directory_fd, shard, (uint32_t)count, ret_fingerprint, ret_message, message_bytes);
	free(shard);
	return result;
}

int cnre_fingerprint_directory(const char *directory, struct cnre_fingerprint *ret_fingerprint, char *ret_message,
			       size_t message_bytes)
{
	DIR *opened = opendir(directory);
	char **names = NULL;
	int count, result;

	if (opened == NULL)
		return cnre_message(ret_message, message_bytes, -errno, "%s: %s", directory, strerror(errno));
	count = list_opened(opened, &names);
	if (count == -E2BIG)
		result = cnre_message(ret_message, message_bytes, count, "more than %d shards", CNRE_SHARDS_MAX);
	else if (count < 0)
		result = cnre_message(ret_message, message_bytes, count, "listing the directory: %s", strerror(-count));
	else if (count == 0)
		result = cnre_message(ret_message, message_bytes, -ENOENT,
				      "no *" SUFFIX " file: name the directory of a checkpoint");
	else
		result = identify_named(dirfd(opened), names, count, ret_fingerprint, ret_message, message_bytes);
	cnre_fingerprint_free_names(names, count);
	(void)closedir(opened);
	return result;
}

const char *cnre_fingerprint_hex(const unsigned char *digest, size_t n, char *text)
{
	static const char digits[] = "0123456789abcdef";
	size_t i;

	CNRE_CHECK(n <= CNRE_DIGEST_BYTES);
	for (i = 0; i < n; i++) {
		text[2 * i] = digits[digest[i] >> 4];
		text[2 * i + 1] = digits[digest[i] & 15];
	}
	text[2 * n] = '\0';
	return text;
}
