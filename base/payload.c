/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a checkpoint's payload by samples; see payload.h. Manager and client link this file. */
#include "base/payload.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define FORMAT "cnre-payload-1"
#define FIELD_FORMAT 'f'
#define FIELD_NAME 'n'
#define FIELD_SIZE 's'
#define FIELD_TIME 't'
#define FIELD_PAGE 'p'

static int add(EVP_MD_CTX *digest, char tag, const void *bytes, uint64_t count)
{
	unsigned char start[9] = {(unsigned char)tag};

	for (unsigned i = 0; i < 8; i++)
		start[1 + i] = (unsigned char)(count >> 8 * i);
	return EVP_DigestUpdate(digest, start, sizeof start) == 1 && EVP_DigestUpdate(digest, bytes, count) == 1 ? 0 : -ENOMEM;
}

static int add_number(EVP_MD_CTX *digest, char tag, uint64_t value)
{
	unsigned char bytes[8];

	for (unsigned i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(value >> 8 * i);
	return add(digest, tag, bytes, sizeof bytes);
}

/* First and last page, and those between at equal distances. A short file may give one page several times. */
static int add_pages(EVP_MD_CTX *digest, int fd, uint64_t file_bytes)
{
	uint64_t pages = file_bytes / PAGE_BYTES + (file_bytes % PAGE_BYTES != 0);
	unsigned char page[PAGE_BYTES];

	for (uint64_t i = 0; i < CNRE_PAYLOAD_PAGES && pages > 0; i++) {
		uint64_t at = i * (pages - 1) / (CNRE_PAYLOAD_PAGES - 1);
		int64_t got = cnre_file_read(fd, page, sizeof page, at * PAGE_BYTES);
		int r = got < 0 ? (int)got : add(digest, FIELD_PAGE, page, (uint64_t)got);

		if (r < 0)
			return r;
	}
	return 0;
}

static int add_opened(EVP_MD_CTX *digest, int fd, uint64_t file_bytes)
{
	struct stat status;
	int r = fstat(fd, &status) < 0 ? -errno : add_number(digest, FIELD_SIZE, file_bytes);

	if (r == 0)
		r = add_number(digest, FIELD_TIME,
			       (uint64_t)status.st_mtim.tv_sec * 1000000000u + (uint64_t)status.st_mtim.tv_nsec);
	return r < 0 ? r : add_pages(digest, fd, file_bytes);
}

static int add_shard(EVP_MD_CTX *digest, const struct cnre_shard_at *shard)
{
	uint64_t file_bytes;
	int fd = cnre_file_open(shard->directory_fd, shard->name, &file_bytes), r;

	if (fd < 0)
		return fd;
	r = add(digest, FIELD_NAME, shard->name, strlen(shard->name));
	if (r == 0)
		r = add_opened(digest, fd, file_bytes);
	(void)close(fd);
	return r;
}

int cnre_payload_shards(const struct cnre_shard_at *shard, uint32_t shard_count, unsigned char ret_digest[CNRE_DIGEST_BYTES])
{
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	unsigned char result[CNRE_DIGEST_BYTES];
	int r = digest != NULL && EVP_DigestInit_ex(digest, EVP_sha256(), NULL) == 1 ? 0 : -ENOMEM;

	if (r == 0)
		r = add(digest, FIELD_FORMAT, FORMAT, sizeof FORMAT - 1);
	for (uint32_t i = 0; i < shard_count && r == 0; i++)
		r = add_shard(digest, &shard[i]);
	if (r == 0 && EVP_DigestFinal_ex(digest, result, NULL) != 1)
		r = -ENOMEM;
	if (r == 0)
		memcpy(ret_digest, result, sizeof result);
	EVP_MD_CTX_free(digest);
	return r;
}

static int digest_named(int directory_fd, char **names, int count, unsigned char ret_digest[CNRE_DIGEST_BYTES])
{
	struct cnre_shard_at *shard = calloc((size_t)count + 1, sizeof *shard);
	int r;

	if (shard == NULL)
		return -ENOMEM;
	for (int i = 0; i < count; i++)
		shard[i] = (struct cnre_shard_at){.directory_fd = directory_fd, .name = names[i], .shown = names[i]};
	r = cnre_payload_shards(shard, (uint32_t)count, ret_digest);
	free(shard);
	return r;
}

int cnre_payload_digest(const char *directory, unsigned char ret_digest[CNRE_DIGEST_BYTES])
{
	char **names = NULL;
	int directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int count = directory_fd < 0 ? -errno : cnre_fingerprint_list_shards(directory, &names);
	int r = count < 0 ? count : digest_named(directory_fd, names, count, ret_digest);

	cnre_fingerprint_free_names(names, count);
	if (directory_fd >= 0)
		(void)close(directory_fd);
	return r;
}
