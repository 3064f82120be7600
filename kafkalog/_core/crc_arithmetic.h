/* What CRC kernels of any reflected 32-bit polynomial share: powers of x, tables, a table walk.
 *
 * Polynomials over GF(2) are kept bit-reflected: bit 31 of a 32-bit word is x^0. Registers are raw:
 * only the entry points of the kernels invert them.
 */

#ifndef KAFKALOG_CRC_ARITHMETIC_H
#define KAFKALOG_CRC_ARITHMETIC_H

#include <stddef.h>
#include <stdint.h>

#define CRC_SLICES 8

/* The product of two words modulo the polynomial. */
static inline uint32_t crc_multiply(uint32_t polynomial, uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = (b >> 1) ^ ((b & 1) ? polynomial : 0);
    }
    return product;
}

/* x to the power of `exponent`, modulo the polynomial. */
static inline uint32_t crc_power_of_x(uint32_t polynomial, uint64_t exponent)
{
    uint32_t result = 0x80000000u; /* x^0 */
    uint32_t square = 0x40000000u; /* x^1, x^2, x^4 ... */
    for (; exponent != 0; exponent >>= 1) {
        if (exponent & 1)
            result = crc_multiply(polynomial, result, square);
        square = crc_multiply(polynomial, square, square);
    }
    return result;
}

/* Fill the tables: slices[k][b] is the CRC of byte b followed by k zero bytes. */
static inline void crc_fill_slices(uint32_t polynomial, uint32_t slices[CRC_SLICES][256])
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? polynomial : 0);
        slices[0][byte] = crc;
    }
    for (int slice = 1; slice < CRC_SLICES; slice++) {
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = slices[slice - 1][byte];
            slices[slice][byte] = (before >> 8) ^ slices[0][before & 0xff];
        }
    }
}

/* Sum up `size` bytes by eight look-ups for eight bytes. */
static inline uint32_t crc_sliced(uint32_t slices[CRC_SLICES][256], uint32_t crc,
                                  const uint8_t *data, size_t size)
{
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = slices[7][low & 0xff] ^ slices[6][(low >> 8) & 0xff] ^ slices[5][(low >> 16) & 0xff] ^
              slices[4][low >> 24] ^ slices[3][data[4]] ^ slices[2][data[5]] ^ slices[1][data[6]] ^
              slices[0][data[7]];
        data += 8;
        size -= 8;
    }
    if (size >= 4) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = slices[3][low & 0xff] ^ slices[2][(low >> 8) & 0xff] ^ slices[1][(low >> 16) & 0xff] ^
              slices[0][low >> 24];
        data += 4;
        size -= 4;
    }
    while (size-- > 0)
        crc = (crc >> 8) ^ slices[0][(crc ^ *data++) & 0xff];
    return crc;
}

#endif
