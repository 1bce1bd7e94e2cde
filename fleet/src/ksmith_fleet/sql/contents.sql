-- Contents that two or more guests hold. Contents of one guest cannot matter to a placement.
SELECT fingerprint, COUNT(*) AS guests, COUNT(DISTINCT host) AS hosts, SUM(copies) AS pages
FROM samples
WHERE copies > 0
GROUP BY fingerprint
HAVING COUNT(*) >= 2
